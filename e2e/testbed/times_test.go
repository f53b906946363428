package testbed_test

import "time"

const (
	waitLong = 30 * time.Second
	poll     = 50 * time.Millisecond
	hang     = 2 * time.Second
)
