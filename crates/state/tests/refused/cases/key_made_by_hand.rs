//! The key of a resource's row comes from the kernel, never from a number.
use holdpoint_state::ResourceKey;

fn main() {
    let _ = ResourceKey(7); //~ E0423
    let _ = ResourceKey::from(7); //~ E0308
}
