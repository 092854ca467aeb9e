"""What users build with: Flow, Stream and related classes."""
