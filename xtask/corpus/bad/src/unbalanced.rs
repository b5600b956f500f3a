// sample: a file whose brackets do not close
fn half() {
    let open = (1;
