//! Only the kernel makes a change: it has no constructor.
use holdpoint_state::Change;
use holdpoint_state::clock::UnixMillis;

fn forge(now: UnixMillis) {
    let _ = Change::new(now); //~ E0599
    let _ = Change::default(); //~ E0599
}

fn main() {
    forge(UnixMillis(0));
}
