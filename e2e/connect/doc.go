// Package connect tests the connection server with other people's clients and with a browser: see the test files. The
// clients are those of clients/package.json; `make clients` installs them.
package connect
