"""How sums over samples are computed: compiled (dense, CSR) and array-API twins."""
