package move

import (
	"fmt"
	"io"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
)

// way says in a few words how the data of a move travels, as the end of a line; empty
// where that is not known.
func way(status v1alpha1.VolumeMoveStatus) string {
	text := ""
	for _, claim := range status.Claims {
		switch claim.Transport {
		case v1alpha1.TransportDirect:
			if text == "" {
				text = "  direct"
			}
		case v1alpha1.TransportSpliced:
			text = "  through the provisioner"
		default: // not connected yet
		}
		if claim.Repository != "" && claim.Transport != "" {
			text = "  through a repository"
		}
	}
	return text
}

// ways says in a sentence for each claim how its data travels, or travelled, and why not
// directly.
func ways(out io.Writer, move *v1alpha1.VolumeMove) error {
	for _, claim := range move.Status.Claims {
		var text string
		switch claim.Transport {
		case v1alpha1.TransportDirect:
			text = "directly from mover to mover"
		case v1alpha1.TransportSpliced:
			text = "through the provisioner"
			if legs := claim.Legs; legs != nil {
				text += fmt.Sprintf(", which reaches the mover at the source %s and the one at the target %s", legText(legs.Source), legText(legs.Target))
			}
			if claim.TransportMessage != "" {
				text += ": " + claim.TransportMessage
			}
		default: // not connected yet
			continue
		}
		if claim.Repository != "" {
			text = fmt.Sprintf("through the repository of cluster %s (%s so far), and the rest %s", claim.Repository, size(claim.Stored), text)
		}
		if _, err := fmt.Fprintf(out, "the data of claim %s travels %s\n", claim.Name, text); err != nil {
			return err
		}
	}
	return nil
}

func legText(leg v1alpha1.MoveLeg) string {
	switch leg {
	case v1alpha1.LegAddress:
		return "at its address"
	case v1alpha1.LegAPIServer:
		return "through the API server"
	default:
		return "in a way that is not known yet"
	}
}
