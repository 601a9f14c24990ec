//! Redisson's YAML.
