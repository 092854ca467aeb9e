"""Stages in tasks that live for many epochs, and exchange rows by themselves."""
