package authsigner

// DummySecret lets the tests try what whoever reads the source can try.
const DummySecret = dummySecret
