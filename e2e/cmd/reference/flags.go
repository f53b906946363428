package main

import (
	_ "embed"
	"fmt"
	"os"
	"regexp"
	"strings"
	"text/template"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	logsapi "k8s.io/component-base/logs/api/v1"

	extender "github.com/lodestone-storage/lodestone/extender/app"
	plugin "github.com/lodestone-storage/lodestone/kubectl-lodestone/cmd"
	network "github.com/lodestone-storage/lodestone/network/app"
	provisioner "github.com/lodestone-storage/lodestone/provisioner/app"
	remoteagent "github.com/lodestone-storage/lodestone/remoteagent/app"
	virtualnode "github.com/lodestone-storage/lodestone/virtualnode/app"
)

//go:embed flags.md.tmpl
var flagsTemplate string

// commands are those whose flags users set, by the name that users call them by.
func commands() map[string]*cobra.Command {
	// Else a default would be the address of the pod that this runs in.
	_, _ = os.Unsetenv("POD_IP"), os.Unsetenv("POD_IPS")
	all := map[string]*cobra.Command{}
	var add func(prefix string, c *cobra.Command)
	add = func(prefix string, c *cobra.Command) {
		name := strings.TrimSpace(prefix + " " + c.Name())
		all[name] = c
		for _, sub := range c.Commands() {
			add(name, sub)
		}
	}
	for _, c := range []*cobra.Command{provisioner.NewCommand(), extender.NewCommand(), virtualnode.NewCommand(), remoteagent.NewCommand(),
		network.NewCommand()} {
		add("", c)
	}
	for _, c := range plugin.New(genericiooptions.NewTestIOStreamsDiscard()).Commands() {
		add("kubectl lodestone", c)
	}
	return all
}

func flagsPage() (string, error) {
	all, shown := commands(), map[string]bool{}
	page, err := template.New("flags.md").Funcs(template.FuncMap{
		"flags": func(name string) (string, error) {
			c := all[name]
			if c == nil {
				return "", fmt.Errorf("there is no command %q", name)
			}
			shown[name] = true
			return table(c), nil
		},
		"plugin": func() string {
			var text strings.Builder
			for _, name := range sorted(all) {
				if strings.HasPrefix(name, "kubectl lodestone ") && len(own(all[name])) > 0 {
					shown[name] = true
					fmt.Fprintf(&text, "\n### %s\n\n%s\n", name, table(all[name]))
				}
			}
			return strings.TrimSpace(text.String())
		},
	}).Parse(flagsTemplate)
	if err != nil {
		return "", fmt.Errorf("read the template: %w", err)
	}
	var text strings.Builder
	if err := page.Execute(&text, nil); err != nil {
		return "", fmt.Errorf("fill in the template: %w", err)
	}
	for _, name := range sorted(all) {
		if !shown[name] && len(own(all[name])) > 0 {
			return "", fmt.Errorf("the page does not show the flags of %q: name it in e2e/cmd/reference/flags.md.tmpl", name)
		}
	}
	return text.String(), nil
}

// own returns the flags that only this command has: not those of logging, which all programs have, nor those of
// kubectl, which all verbs of the plugin have.
func own(c *cobra.Command) []*pflag.Flag {
	logging := pflag.NewFlagSet("", pflag.ContinueOnError)
	logsapi.AddFlags(logsapi.NewLoggingConfiguration(), logging)
	var flags []*pflag.Flag
	c.LocalNonPersistentFlags().VisitAll(func(flag *pflag.Flag) {
		if logging.Lookup(flag.Name) == nil && flag.Name != "help" && flag.Name != "version" && !flag.Hidden {
			flags = append(flags, flag)
		}
	})
	return flags
}

func table(c *cobra.Command) string {
	var text strings.Builder
	text.WriteString("| flag | default | meaning |\n| --- | --- | --- |\n")
	for _, flag := range own(c) {
		name := "`--" + flag.Name + "`"
		if flag.Shorthand != "" {
			name = "`-" + flag.Shorthand + "`, " + name
		}
		value, meaning := explain(flag)
		fmt.Fprintf(&text, "| %s | %s | %s |\n", name, value, meaning)
	}
	return strings.TrimSpace(text.String())
}

// code is what is to be set as code in a usage text: flags, paths and placeholders.
var code = regexp.MustCompile(`(^|[ (])(--[a-z][a-z-]*|/[a-z][a-z/]*)`)

// explain returns the default of a flag and what it means. Where the flag is empty by default, its usage text says
// what that means, after "empty: " or "default: ".
func explain(flag *pflag.Flag) (value, meaning string) {
	if flag.DefValue != "" && flag.DefValue != "[]" {
		value = flag.DefValue
		for _, zero := range []string{"m0s", "h0m"} {
			if strings.HasSuffix(value, zero) {
				value = value[:len(value)-2]
			}
		}
		value = "`" + value + "`"
	}
	var parts []string
	for part := range strings.SplitSeq(flag.Usage, "; ") {
		instead, ok := strings.CutPrefix(part, "empty: ")
		if !ok {
			instead, ok = strings.CutPrefix(part, "default: ")
		}
		if ok && value == "" {
			value = instead
			continue
		}
		parts = append(parts, part)
	}
	clean := strings.NewReplacer("|", "\\|", "<", "&lt;")
	return code.ReplaceAllString(clean.Replace(value), "$1`$2`"), code.ReplaceAllString(clean.Replace(strings.Join(parts, "; ")), "$1`$2`")
}
