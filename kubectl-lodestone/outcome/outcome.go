// Package outcome says how a command ended: the exit code that scripts rely on.
package outcome

import (
	"errors"
	"fmt"
)

// Code is the exit code of the program.
type Code int

const (
	// OK says that what was asked for is so.
	OK Code = 0
	// Failed says that it could not be done, or not yet; the same command may be tried again.
	Failed Code = 1
	// Usage says that the command line is wrong.
	Usage Code = 2
	// Refused says that it would harm data or a peering that exists, so nothing was done.
	Refused Code = 3
)

type coded struct {
	error
	code Code
}

func (c coded) Unwrap() error { return c.error }

// Refuse returns the error of what is not done because it would do harm.
func Refuse(format string, args ...any) error {
	return coded{error: fmt.Errorf(format, args...), code: Refused}
}

// Misuse returns the error of a wrong command line.
func Misuse(format string, args ...any) error {
	return coded{error: fmt.Errorf(format, args...), code: Usage}
}

// Of returns the exit code of an error; OK of none.
func Of(err error) Code {
	var c coded
	switch {
	case err == nil:
		return OK
	case errors.As(err, &c):
		return c.code
	}
	return Failed
}
