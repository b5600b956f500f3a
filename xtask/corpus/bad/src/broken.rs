// sample: file_that_does_not_parse
fn main() { let = ; }
