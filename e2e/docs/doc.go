// Package docs tests that what the pages and the examples say is so: that links lead somewhere, that the tests that
// they name exist, and that examples for other programs do what they should.
package docs
