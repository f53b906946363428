package cli

import (
	"io"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/printers"
)

// PrintTable prints a table as kubectl does; wide: with all its columns.
func PrintTable(out io.Writer, table *metav1.Table, wide bool) error {
	return printers.NewTablePrinter(printers.PrintOptions{Wide: wide}).PrintObj(table, out)
}

// Column is a column of a table; wide: it is shown with -o wide alone.
func Column(name string, wide bool) metav1.TableColumnDefinition {
	c := metav1.TableColumnDefinition{Name: name, Type: "string"}
	if wide {
		c.Priority = 1
	}
	return c
}

// None is what a table has where there is nothing, or nothing is known.
const None = "<none>"

// OrNone is a text for a table: None if it is empty.
func OrNone(text string) string {
	if text == "" {
		return None
	}
	return text
}
