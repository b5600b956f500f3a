//! sample: a_testing_kit_beside_the_domain
pub const TOY: Operation = Operation { name: "toy.break", ..Operation::PLAIN };
