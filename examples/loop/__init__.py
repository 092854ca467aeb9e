"""Payments that are declined come round: they wait longer each time, then give up."""
