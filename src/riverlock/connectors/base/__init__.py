"""What every source and sink is made of."""
