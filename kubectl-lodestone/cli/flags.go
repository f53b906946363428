package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"
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
		return Misuse("%s needs a value (%s)", nameOf(bare.GetFlag()), meaning(bare.GetFlag()))
	case errors.As(err, &invalid):
		return Misuse("%s %q %s", nameOf(invalid.GetFlag()), invalid.GetValue(), wrongValue(invalid.GetFlag(), invalid.Unwrap()))
	case errors.As(err, &syntax):
		return Misuse("%q is not a flag: write --NAME=VALUE; %s --help lists the flags", syntax.GetSpecifiedFlag(), cmd.CommandPath())
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
		return "is not a time: give one such as 90s, 10m or 1h30m"
	case "int", "int32":
		if errors.Is(cause, strconv.ErrRange) {
			return "is too large"
		}
		return "is not a whole number"
	case "stringToString":
		return "is not understood: give NAME=VALUE, and several with commas between them"
	case "stringSlice":
		return "is not understood: give one value, or several with commas between them, without quotation marks"
	}
	return fmt.Sprintf("is not understood: %v", cause)
}

// Output formats of -o.
const (
	JSON = "json"
	YAML = "yaml"
	Wide = "wide"
	Name = "name"
)

// Output is the value of the flag -o, and the formats that the command has.
type Output struct {
	Format  string
	formats []string
}

// Add adds the flag -o to a command. what says what is written.
func (o *Output) Add(cmd *cobra.Command, what string, formats ...string) {
	o.formats = formats
	cmd.Flags().StringVarP(&o.Format, "output", "o", "", Or(formats)+": "+what)
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp))
}

// Check returns an error for a format that the command does not have.
func (o *Output) Check() error {
	if o.Format == "" || slices.Contains(o.formats, o.Format) {
		return nil
	}
	return Misuse("-o %q is not known here: give -o %s", o.Format, Or(o.formats))
}

// IsObject says that the format is one for programs: JSON or YAML.
func (o *Output) IsObject() bool { return o.Format == JSON || o.Format == YAML }

// Write writes an object as JSON or YAML.
func (o *Output) Write(out io.Writer, object any) error {
	content, err := json.MarshalIndent(object, "", "  ")
	content = append(content, '\n')
	if err == nil && o.Format == YAML {
		content, err = yaml.JSONToYAML(content)
	}
	if err != nil {
		return fmt.Errorf("write as %s: %w", o.Format, err)
	}
	_, err = out.Write(content)
	return err
}

// object is one of our own kinds.
type object[T any] interface {
	*T
	runtime.Object
	metav1.Object
}

// WriteOne writes an object of a kind as the format says, as kubectl prints it: with its kind, which clients leave out, and without
// managedFields.
func (o *Output) WriteOne(out io.Writer, kind schema.GroupVersionKind, one interface {
	runtime.Object
	metav1.Object
}) error {
	if o.Format == Name {
		of := strings.TrimSuffix(strings.ToLower(kind.Kind)+"."+kind.Group, ".")
		_, err := fmt.Fprintf(out, "%s/%s\n", of, one.GetName())
		return err
	}
	return o.Write(out, typed(kind, one))
}

// WriteAll writes objects of a kind: as one object, a List, or their names.
func WriteAll[T any, P object[T]](o Output, out io.Writer, kind schema.GroupVersionKind, all []T) error {
	items := make([]runtime.Object, 0, len(all))
	for i := range all {
		if o.Format == Name {
			if err := o.WriteOne(out, kind, P(&all[i])); err != nil {
				return err
			}
			continue
		}
		items = append(items, typed(kind, P(&all[i])))
	}
	if o.Format == Name {
		return nil
	}
	return o.Write(out, map[string]any{"apiVersion": "v1", "kind": "List", "items": items})
}

func typed(kind schema.GroupVersionKind, one runtime.Object) runtime.Object {
	one = one.DeepCopyObject()
	one.GetObjectKind().SetGroupVersionKind(kind)
	if accessor, ok := one.(metav1.Object); ok {
		accessor.SetManagedFields(nil)
	}
	return one
}

// Scope has the flags -A and -l of a command that lists objects.
type Scope struct {
	Everywhere bool
	Selector   string
}

// Add adds the flags to a command. what says what is listed.
func (s *Scope) Add(cmd *cobra.Command, what string) {
	cmd.Flags().BoolVarP(&s.Everywhere, "all-namespaces", "A", false, what+" of all namespaces")
	cmd.Flags().StringVarP(&s.Selector, "selector", "l", "", "only "+what+" with these labels, such as app=shop")
}

// Given says that one of the flags was given.
func (s *Scope) Given() bool { return s.Everywhere || s.Selector != "" }

// Check returns an error for a selector that cannot be read.
func (s *Scope) Check() error {
	if _, err := labels.Parse(s.Selector); err != nil {
		return Misuse("-l %q is not a selector: give labels such as app=shop,tier!=web", s.Selector)
	}
	return nil
}

// Options are those of a list.
func (s *Scope) Options() metav1.ListOptions { return metav1.ListOptions{LabelSelector: s.Selector} }

// In returns the namespace that is listed: the one that is given, empty for all.
func (s *Scope) In(namespace string) string {
	if s.Everywhere {
		return metav1.NamespaceAll
	}
	return namespace
}

// Labels selects by labels; everything if the selector was not checked.
func (s *Scope) Labels() labels.Selector {
	selector, err := labels.Parse(s.Selector)
	if err != nil {
		return labels.Everything()
	}
	return selector
}
