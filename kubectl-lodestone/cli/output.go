package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"
)

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
