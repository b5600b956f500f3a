//! Four processes that write one database at once: fairness and waits.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::{Settings, announce, open, schema};

/// Tells a child process which database to write.
pub(crate) const CHILD: &str = "HOLDPOINT_BENCH_CHILD";
const SECONDS: &str = "HOLDPOINT_BENCH_CHILD_MS";
const PROCESSES: usize = 4;

/// Starts the processes together and prints how they fared.
pub(crate) fn measure(path: &Path, settings: &Settings) {
    let mut children: Vec<_> = (0..PROCESSES)
        .map(|_| {
            Command::new(std::env::current_exe().unwrap())
                .env(CHILD, path)
                .env(SECONDS, settings.duration.as_millis().to_string())
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .unwrap()
        })
        .collect();
    // Each child says that its database is open; then all start at one word.
    let mut outputs: Vec<_> = children
        .iter_mut()
        .map(|child| BufReader::new(child.stdout.take().unwrap()).lines())
        .collect();
    for lines in &mut outputs {
        assert_eq!(lines.next().unwrap().unwrap(), "ready");
    }
    for child in &mut children {
        child.stdin.take().unwrap().write_all(b"go\n").unwrap();
    }
    let mut counts = Vec::new();
    let mut longest = Duration::ZERO;
    let mut errors = 0;
    for (child, lines) in children.iter_mut().zip(&mut outputs) {
        let line = lines.next().unwrap().unwrap();
        let mut numbers = line.split(' ').map(|text| text.parse::<u64>().unwrap());
        counts.push(numbers.next().unwrap());
        longest = longest.max(Duration::from_micros(numbers.next().unwrap()));
        errors += numbers.next().unwrap();
        assert!(child.wait().unwrap().success());
    }
    let (slowest, fastest) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
    println!(
        "{} commands, slowest {:.2} of the fastest, longest wait {longest:.2?}, {errors} busy errors",
        counts.iter().sum::<u64>(),
        *slowest as f64 / *fastest as f64
    );
}

/// One process: commands one after the other, as fast as they go.
pub(crate) fn child(path: &Path) {
    let duration = Duration::from_millis(std::env::var(SECONDS).unwrap().parse().unwrap());
    let db = open(path, &schema(), 0);
    println!("ready");
    std::io::stdin().read_line(&mut String::new()).unwrap();
    let begun = Instant::now();
    let (mut count, mut longest, mut errors) = (0_u64, Duration::ZERO, 0_u64);
    let mut turn = usize::try_from(std::process::id()).unwrap();
    while begun.elapsed() < duration {
        let sent = Instant::now();
        match announce(&db, turn).wait() {
            Ok(_) => count += 1,
            Err(_) => errors += 1,
        }
        longest = longest.max(sent.elapsed());
        turn += 1;
    }
    println!("{count} {} {errors}", longest.as_micros());
}
