"""What Spark has analysed of a flow, compiled for tasks that have no Spark."""
