//! Two holders (findings 1 to 7, 16): shared owners, late copies, forged and misread grants.
