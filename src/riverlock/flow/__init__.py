"""What users build with: Flow, Stream and their kin."""
