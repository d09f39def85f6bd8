"""What users declare about their groups, and how their code is found in other processes."""
