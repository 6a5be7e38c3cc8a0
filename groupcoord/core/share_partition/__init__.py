"""Share-partition at its leader (KIP-932): acquired records, locks and delivery counts."""
