"""`eddy replay`: recorded streams under several plans, strategies and policies, side by side."""
