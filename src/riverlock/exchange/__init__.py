"""How tasks that live for many epochs exchange rows, and talk to their driver."""
