//! The texts are replies of the servers that the tests name, with other addresses.

use distlock_support::Numbers;

use super::*;

const HOST: &str = "10.0.0.1";

fn at(host: &str, port: u16) -> Option<Address> {
    Some(Address::new(host, port).unwrap())
}

#[test]
fn moved_and_ask_redirects_are_parsed() {
    // Redis 6.2.14, 7.0.15, 8.2.3, Valkey 8.1.8, 9.0.0 and 9.1.2; host names from 7.0 on.
    for (address, to) in [
        ("127.0.0.1:15101", at("127.0.0.1", 15101)),
        ("fd00::5:16201", at("fd00::5", 16201)),
        ("[fd00::5]:16201", at("fd00::5", 16201)),
        ("n1.example:15101", at("n1.example", 15101)),
        (":15101", at(HOST, 15101)),
        ("?:15101", None),
        ("", None),
        ("10.0.0.7", None),
        ("10.0.0.7:0", None),
        ("10.0.0.7:6379 and more", at("10.0.0.7", 6379)),
    ] {
        let moved = Redirect::of(&format!("MOVED 12182 {address}"), HOST);
        assert_eq!(moved, Redirect::Moved { slot: 12_182, to: to.clone() }, "{address}");
        assert_eq!(Redirect::of(&format!("ASK 5 {address}"), HOST), Redirect::Ask { slot: 5, to }, "{address}");
    }
    assert_eq!(Redirect::of("MOVED 1 :7", "::1"), Redirect::Moved { slot: 1, to: at("::1", 7) });
    for odd in ["MOVED", "MOVED ", "MOVED a:1", "MOVED -1 a:1", "MOVED 16384 a:1", "ASK +1 a:1", "ASK", "MOVEDX 1 a:1"]
    {
        assert_eq!(Redirect::of(odd, HOST), Redirect::None, "{odd}");
    }
}

#[test]
fn errors_with_leading_code_are_classified() {
    for (text, expected) in [
        ("TRYAGAIN Multiple keys request during rehashing of slot", Redirect::Again),
        ("CLUSTERDOWN The cluster is down", Redirect::Down),
        ("CLUSTERDOWN The cluster is down and only accepts read commands", Redirect::Down),
        ("CLUSTERDOWN Hash slot not served", Redirect::Down),
        ("LOADING Redis is loading the dataset in memory", Redirect::Down),
        ("MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.", Redirect::Down),
        ("BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.", Redirect::Down),
        ("BUSY Valkey is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.", Redirect::Down),
        ("READONLY You can't write against a read only replica.", Redirect::Demoted),
        ("NOREPLICAS Not enough good replicas to write.", Redirect::Demoted),
    ] {
        assert_eq!(Redirect::of(text, HOST), expected, "{text}");
    }
}

#[test]
fn script_errors_of_six_server_versions_are_classified() {
    const READONLY: &str = "READONLY You can't write against a read only replica.";
    const NOREPLICAS: &str = "NOREPLICAS Not enough good replicas to write.";
    const FAR: &str = "access a non local key in a cluster node";
    const DOWN: &str = "execute a command while the cluster is down";
    const DOWN_TO_WRITES: &str = "execute a write command while the cluster is down and readonly";
    let mut table = vec![
        // Valkey 9.1.2.
        ("ERR Can not execute a command 'set' while the cluster is down".to_owned(), Redirect::Down),
        ("ERR Can not execute a write command 'set' while the cluster is down and readonly".to_owned(), Redirect::Down),
        (format!("ERR Attempted to {FAR}"), Redirect::NonLocal),
        // Redis 8.2.3, Valkey 8.1.8 and 9.0.0.
        ("ERR Script attempted to access a slot not served".to_owned(), Redirect::NonLocal),
        (
            "ERR Unable to execute command 'mget' in script because undeclared keys were accessed during rehashing of the slot"
                .to_owned(),
            Redirect::NonLocal,
        ),
        // From Redis 7.0.15 on.
        (READONLY.to_owned(), Redirect::Demoted),
        (NOREPLICAS.to_owned(), Redirect::Demoted),
        (format!("ERR Script attempted to {FAR}"), Redirect::NonLocal),
        (format!("ERR Script attempted to {DOWN}"), Redirect::Down),
        (format!("ERR Script attempted to {DOWN_TO_WRITES}"), Redirect::Down),
    ];
    // If the script did not catch the error: Redis 7.0.15 to Valkey 9.0.0 with the script's name, 9.1.2 without.
    for place in
        [" script: ededdde797cc734391b1e1dc6d412d31f2402f81, on @user_script:1.", " script: on @user_script:2."]
    {
        let uncaught: Vec<_> = table[..10].iter().map(|(text, told)| (text.clone() + place, told.clone())).collect();
        table.extend(uncaught);
    }
    // Redis 6.2.14: not caught by the script, then caught.
    let call = "ERR Error running script (call to f_ededdde797cc734391b1e1dc6d412d31f2402f81): @user_script:1: ";
    for front in [call, ""] {
        for (text, told) in [
            (format!("-{READONLY}"), Redirect::Demoted),
            (format!("-{NOREPLICAS}"), Redirect::Demoted),
            (format!("Lua script attempted to {FAR}"), Redirect::NonLocal),
            (format!("Lua script attempted to {DOWN}"), Redirect::Down),
            (format!("Lua script attempted to {DOWN_TO_WRITES}"), Redirect::Down),
        ] {
            table.push((format!("{front}@user_script: 1: {text}"), told));
        }
    }
    for (text, told) in &table {
        assert_eq!(Redirect::of(text, HOST), *told, "{text}");
    }
    assert_eq!(table.len(), 40);
}

#[test]
fn other_errors_are_no_redirects() {
    for text in [
        "",
        " ",
        "ERR",
        "OK",
        "WRONGTYPE Operation against a key holding the wrong kind of value",
        "OOM command not allowed when used memory > 'maxmemory'.",
        "NOSCRIPT No matching script. Please use EVAL.",
        "CROSSSLOT Keys in request don't hash to the same slot",
        "BUSYKEY Target key name already exists.",
        "BUSYGROUP Consumer Group name already exists",
        "moved 1 a:1",
        " MOVED 1 a:1",
        // The code is inside words that a user chose.
        "ERR MOVED 1 a:1",
        "ERR unknown command 'x', with args beginning with: 'MOVED 1 evil:1' ",
        "ERR unknown command 'attempted to access a non local key', with args beginning with: ",
        "ERR x while the cluster is down",
        "@user_script: 1: MOVED 1 evil:1",
        "ERR Error running script (call to f_x): @user_script:1: @user_script: 1: -MOVED 1 evil:1",
        "ERR Error running script (call to f_x): @user_script:1: Script killed by user with SCRIPT KILL...",
        "ERR Script killed by user with SCRIPT KILL. script: on @user_script:1.",
    ] {
        assert_eq!(Redirect::of(text, HOST), Redirect::None, "{text}");
    }
}

#[test]
fn mutated_errors_do_not_panic() {
    let texts = [
        "MOVED 12182 fd00::5:16201",
        "ASK 5 :15101",
        "ERR Error running script (call to f_x): @user_script:1: @user_script: 1: -READONLY You can't",
        "ERR Unable to execute command 'mget' in script because undeclared keys were accessed during rehashing",
        "ERR Script attempted to access a slot not served script: ☃, on @user_script:1.",
        "ERR Can not execute a write command 'set' while the cluster is down and readonly script: on @user_script:1.",
    ];
    let mut numbers = Numbers::new(11);
    for _ in 0..100_000 {
        let text = super::super::slots::mutated(numbers.of(&texts), &mut numbers);
        if let Redirect::Moved { slot, .. } | Redirect::Ask { slot, .. } = Redirect::of(&text, HOST) {
            assert!(slot < SLOTS);
        }
    }
}
