// Package confirm asks before what cannot be undone.
package confirm

import (
	"bufio"
	"fmt"
	"io"
	"strings"

	"github.com/lodestone-storage/lodestone/kubectl-lodestone/outcome"
)

// Typed returns nil if yes is set or the user types word; otherwise the error
// says that nothing was changed. The prompt goes to out.
func Typed(in io.Reader, out io.Writer, yes bool, word string) error {
	if yes {
		return nil
	}
	fmt.Fprintf(out, "Type %s to go on: ", word)
	line, err := bufio.NewReader(in).ReadString('\n')
	if err != nil && line == "" {
		fmt.Fprintln(out)
	}
	if strings.TrimSpace(line) != word {
		return outcome.Refuse("nothing was changed, because %q was not typed: answer the question, or give --yes", word)
	}
	return nil
}
