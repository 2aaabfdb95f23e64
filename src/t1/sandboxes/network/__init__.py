"""What a sandbox without a network reaches all the same: addresses that we lend it, and an allow-list's hosts."""
