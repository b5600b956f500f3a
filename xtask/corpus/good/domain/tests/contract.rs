// sample: a_domain_of_the_tests
const PROBE: Operation = Operation { name: "probe.poke", ..Operation::PLAIN };
