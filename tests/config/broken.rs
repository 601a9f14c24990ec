//! The files in `broken/`, each wrong in one place.

use distlock::{Error, RedissonYaml};

use crate::text;

/// File name, line, column, and part of the error.
const BROKEN: [(&str, usize, usize, &str); 12] = [
    ("tab", 2, 2, "no YAML"),
    ("open-bracket", 3, 3, "no YAML"),
    ("twice", 5, 3, "occurs twice"),
    ("no-number", 4, 12, "singleServerConfig.timeout: a whole number"),
    ("two-kinds", 3, 1, "clusterServersConfig: servers are named by singleServerConfig already"),
    ("no-servers", 1, 1, "no servers are named"),
    ("bad-address", 4, 5, "clusterServersConfig.nodeAddresses: an address begins with"),
    ("no-variable", 3, 13, "the variable REDIS_PASWORD is not set"),
    ("empty-default", 3, 13, "an empty default"),
    ("mapper", 3, 13, "nameMapper: it names Java code"),
    ("alias", 3, 26, "aliases"),
    ("too-deep", 2, 27, "deeper than 16"),
];

#[test]
fn broken_file_is_refused_with_line_and_column() {
    let mut odd = Vec::new();
    for (name, line, column, what) in BROKEN {
        for lenient in [false, true] {
            let reader = RedissonYaml::new().lenient(lenient).variables([("REDIS_PASSWORD", "secret")]);
            let Err(Error::Config { what: said }) = reader.read(&text("broken", name)) else { panic!("{name}: read") };
            if !said.contains(&format!("line {line}, column {column}: "))
                || !said.contains(what)
                || said.contains("secret")
            {
                odd.push(format!("{name}: {said}"));
            }
        }
    }
    assert!(odd.is_empty(), "{odd:#?}");
}
