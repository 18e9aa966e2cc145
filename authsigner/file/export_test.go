package file

import "time"

// OpenWithInterval is Open with another interval of checks for changes.
func OpenWithInterval(path string, o Options, interval time.Duration) (*Source, error) {
	return open(path, o, interval)
}
