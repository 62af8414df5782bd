"""The contract that every other room reads: feature specs, query groups as ELWC, manifests."""
