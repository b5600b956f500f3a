//! Where the tests get pi from: the package that `pi/package-lock.json` pins, installed by npm once and kept in the target
//! directory.
//!
//! Without Node (20.6 or later), npm or a registry the tests that need it say so and pass. Where `CI_REQUIRE_NODE` is set, only the
//! absence of Node itself is an excuse.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

const LOCK: &str = include_str!("pi/package-lock.json");
const PACKAGE: &str = include_str!("pi/package.json");

/// The program, or nothing where this machine can't have it.
pub(crate) fn pi() -> Option<&'static Path> {
    static PI: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    match PI.get_or_init(|| node().and_then(|()| install())) {
        Ok(program) => Some(program),
        Err(why) => {
            let is_required = std::env::var_os("CI_REQUIRE_NODE").is_some() && node().is_ok();
            assert!(!is_required, "CI_REQUIRE_NODE is set, and {why}");
            // Not by a macro: those are silent in a test that passes.
            let name = std::thread::current().name().unwrap_or("?").to_owned();
            let mut stderr = std::io::stderr().lock();
            writeln!(stderr, "SKIPPED {name}: {why}").unwrap();
            None
        }
    }
}

fn node() -> Result<(), String> {
    let missing = |what: &str| format!("the tests with pi need Node 20.6 or later: {what}");
    let output = Command::new("node")
        .arg("--version")
        .output()
        .map_err(|error| missing(&error.to_string()))?;
    let version = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    let mut numbers = version
        .trim_start_matches('v')
        .split('.')
        .map_while(|number| number.parse::<u32>().ok());
    match (numbers.next(), numbers.next()) {
        (Some(major), Some(minor)) if (20, 6) <= (major, minor) => Ok(()),
        _ => Err(missing(&format!("this one is {version:?}"))),
    }
}

fn install() -> Result<PathBuf, String> {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let home = target.join("pi");
    let program = home.join("node_modules/.bin/pi");
    if std::fs::read_to_string(home.join("package-lock.json")).is_ok_and(|lock| lock == LOCK) {
        return Ok(program);
    }
    // Into a folder of its own, which gets its name when it is whole: another test process may install too.
    let folder = tempfile::Builder::new()
        .prefix("pi-")
        .tempdir_in(target)
        .map_err(|error| error.to_string())?;
    std::fs::write(folder.path().join("package.json"), PACKAGE).unwrap();
    std::fs::write(folder.path().join("package-lock.json"), LOCK).unwrap();
    let output = Command::new("npm")
        .args([
            "ci",
            "--ignore-scripts",
            "--no-audit",
            "--no-fund",
            "--prefer-offline",
        ])
        .args(["--fetch-retries=1", "--fetch-timeout=60000"])
        .current_dir(folder.path())
        .output()
        .map_err(|error| format!("npm did not start: {error}"))?;
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr);
        return Err(format!("npm could not install pi: {}", stderr.trim()));
    }
    let _absent = std::fs::remove_dir_all(&home);
    let whole = folder.keep();
    if std::fs::rename(&whole, &home).is_err() {
        // The other process was faster.
        std::fs::remove_dir_all(&whole).unwrap();
    }
    Ok(program)
}
