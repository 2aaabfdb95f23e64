"""One trainer in many processes: who they are, what each holds, and how what they find comes together."""
