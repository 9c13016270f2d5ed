"""What training does to the policy: gradient analysis and the signs of collapsing reasoning."""
