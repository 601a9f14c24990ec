//! Authorities and certificates that openssl makes for a test.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use distlock_support::reaper::Folder;

use crate::ears;

#[derive(Clone, Copy, Debug)]
pub enum When {
    Now,
    Past,
    Future,
}

impl When {
    const fn span(self) -> (&'static str, &'static str) {
        match self {
            Self::Now => ("20200101000000Z", "20491231235959Z"),
            Self::Past => ("20200101000000Z", "20210101000000Z"),
            Self::Future => ("20480101000000Z", "20491231235959Z"),
        }
    }
}

const CONFIG: &str = "[ca]\ndefault_ca=d\n[d]\ndatabase=index.txt\nnew_certs_dir=.\nrand_serial=yes\npolicy=p\ndefault_md=sha256\n\
                      unique_subject=no\n[p]\ncommonName=supplied\n";

/// A private authority, with the folder of everything that it has signed.
pub struct Authority(Folder);

fn openssl(dir: &Path, args: &str) {
    let made = Command::new("openssl").args(args.split(' ')).current_dir(dir).stdin(Stdio::null()).output();
    let made = made.expect("openssl is needed (./x test gets it)");
    assert!(made.status.success(), "openssl {args}: {}", String::from_utf8_lossy(&made.stderr));
}

impl Authority {
    pub fn new(name: &str) -> Self {
        let dir = Folder::new();
        std::fs::write(dir.path().join("index.txt"), "").unwrap();
        std::fs::write(dir.path().join("ca.cnf"), CONFIG).unwrap();
        let make = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -keyout ca.key -out ca.pem";
        openssl(dir.path(), &format!("{make} -subj /CN={name}"));
        Self(dir)
    }

    pub fn folder(&self) -> &Path {
        self.0.path()
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.folder().join(name)
    }

    /// Makes `cert.pem` and `key.pem` for these names, as the server fixtures expect.
    pub fn server(&self, names: &str, when: When) {
        self.sign("", names, when);
    }

    /// Makes `<of>cert.pem` and `<of>key.pem`, for these names.
    pub fn sign(&self, of: &str, names: &str, when: When) -> (PathBuf, PathBuf) {
        let at = self.folder();
        std::fs::write(at.join("names"), format!("subjectAltName={names}\n")).unwrap();
        let make = "req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=redis -out request";
        openssl(at, &format!("{make} -keyout {of}key.pem"));
        let (from, to) = when.span();
        let sign = "ca -batch -notext -config ca.cnf -cert ca.pem -keyfile ca.key -in request -extfile names";
        openssl(at, &format!("{sign} -startdate {from} -enddate {to} -out {of}cert.pem"));
        let (certificate, key) = (self.file(&format!("{of}cert.pem")), self.file(&format!("{of}key.pem")));
        ears::key(&key);
        (certificate, key)
    }
}
