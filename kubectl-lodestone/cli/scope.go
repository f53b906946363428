package cli

import (
	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

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
		return Misuse("-l %q is no selector: give labels such as app=shop,tier!=web", s.Selector)
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
