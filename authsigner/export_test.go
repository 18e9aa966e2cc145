package authsigner

// DummySecret is known to every reader of the source.
const DummySecret = dummySecret
