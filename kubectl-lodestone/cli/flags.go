package cli

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// FlagError says in one sentence what is wrong with a flag of a command line, and what to write.
func FlagError(cmd *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	var bare *pflag.ValueRequiredError
	var invalid *pflag.InvalidValueError
	var syntax *pflag.InvalidSyntaxError
	switch {
	case errors.As(err, &unknown):
		return unknownFlag(cmd, unknown)
	case errors.As(err, &bare):
		return Misuse("%s needs a value behind it: %s", nameOf(bare.GetFlag()), meaning(bare.GetFlag()))
	case errors.As(err, &invalid):
		return Misuse("%s %q %s", nameOf(invalid.GetFlag()), invalid.GetValue(), wrongValue(invalid.GetFlag(), invalid.Unwrap()))
	case errors.As(err, &syntax):
		return Misuse("%q is no flag: write --NAME=VALUE; %s --help lists the flags", syntax.GetSpecifiedFlag(), cmd.CommandPath())
	}
	return Misuse("%w: %s --help lists the flags", err, cmd.CommandPath())
}

func unknownFlag(cmd *cobra.Command, err *pflag.NotExistError) error {
	if group := err.GetSpecifiedShortnames(); group != "" {
		return Misuse("%s has no flag -%s: --help lists those that it has", cmd.CommandPath(), err.GetSpecifiedName())
	}
	var names []string
	cmd.Flags().VisitAll(func(flag *pflag.Flag) {
		if !flag.Hidden {
			names = append(names, "--"+flag.Name)
		}
	})
	name := "--" + err.GetSpecifiedName()
	if like := Meant(names, name); len(err.GetSpecifiedName()) > 2 && len(like) > 0 {
		return Misuse("%s has no flag %s: did you mean %s?", cmd.CommandPath(), name, Or(like))
	}
	return Misuse("%s has no flag %s: --help lists those that it has", cmd.CommandPath(), name)
}

// meaning returns the usage of a flag as the end of a sentence: kubectl's own begin with a capital letter and end with a point.
func meaning(flag *pflag.Flag) string {
	usage := strings.TrimSuffix(flag.Usage, ".")
	if at := strings.IndexAny(usage, "ABCDEFGHIJKLMNOPQRSTUVWXYZ"); at == 0 && len(usage) > 1 && usage[1] >= 'a' {
		usage = strings.ToLower(usage[:1]) + usage[1:]
	}
	return usage
}

// nameOf returns a flag as it is written.
func nameOf(flag *pflag.Flag) string { return "--" + flag.Name }

// wrongValue says what is wrong with the value of a flag, by the type of the flag.
func wrongValue(flag *pflag.Flag, cause error) string {
	switch flag.Value.Type() {
	case "bool":
		return "is not known: give true or false, or the flag alone"
	case "duration":
		return "is no time: give one such as 90s, 10m or 1h30m"
	case "int", "int32":
		if errors.Is(cause, strconv.ErrRange) {
			return "is too large"
		}
		return "is no whole number"
	case "stringToString":
		return "is not understood: give NAME=VALUE, and several with commas between them"
	case "stringSlice":
		return "is not understood: give one value, or several with commas between them, without quotation marks"
	}
	return fmt.Sprintf("is not understood: %v", cause)
}
