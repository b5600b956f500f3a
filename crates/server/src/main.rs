//! The `holdpoint` command: everything it does is in the library, so that tests and the server use the same code.
fn main() -> std::process::ExitCode {
    holdpoint_server::run(std::env::args_os()).into()
}
