"""What every figure of the report is made with: its points, where their rows are kept, how they are drawn and told."""
