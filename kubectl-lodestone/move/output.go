package move

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/spf13/pflag"

	"github.com/lodestone-storage/lodestone/kubectl-lodestone/outcome"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
)

// outputFlag is -o of a command that asks something of one move.
func outputFlag(flags *pflag.FlagSet, output *string) {
	flags.StringVarP(output, "output", "o", "", "json: write the VolumeMove, also if that is refused")
}

func checkOutput(output string) error {
	if output != "" && output != "json" {
		return outcome.Misuse("output %q is not known: give -o json", output)
	}
	return nil
}

// asked says that something was asked of a move, or returns err, why not; with an output
// it writes the move either way.
func asked(out io.Writer, output string, move *v1alpha1.VolumeMove, verb string, err error) error {
	if output != "" {
		if unwritten := write(out, move); err == nil {
			err = unwritten
		}
		return err
	}
	if err == nil {
		_, err = fmt.Fprintf(out, "volumemove/%s: asked to %s\n", move.Name, verb)
	}
	return err
}

// typed returns a move that says what kind of object it is, which clients leave out, and
// not who wrote which of its fields, as kubectl prints objects.
func typed(move *v1alpha1.VolumeMove) *v1alpha1.VolumeMove {
	move = move.DeepCopy()
	move.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("VolumeMove"))
	move.ManagedFields = nil
	return move
}

// write writes a move as JSON.
func write(out io.Writer, move *v1alpha1.VolumeMove) error { return encode(out, typed(move)) }

// writeAll writes moves as one JSON object, a List.
func writeAll(out io.Writer, moves []v1alpha1.VolumeMove) error {
	items := make([]*v1alpha1.VolumeMove, 0, len(moves))
	for i := range moves {
		items = append(items, typed(&moves[i]))
	}
	return encode(out, map[string]any{"apiVersion": "v1", "kind": "List", "items": items})
}

func encode(out io.Writer, object any) error {
	encoder := json.NewEncoder(out)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(object); err != nil {
		return fmt.Errorf("write JSON: %w", err)
	}
	return nil
}
