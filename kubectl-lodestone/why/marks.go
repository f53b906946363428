package why

import (
	"fmt"
	"strconv"
	"strings"
)

// Said is what the extender said of a pod last.
type Said struct {
	// Verdicts say which nodes it refused, and why.
	Verdicts []Verdict
	// Marks say how much it preferred the nodes that were left; none if it had no
	// preference, or a single node was left.
	Marks []Mark
}

// Mark is how much the extender preferred the nodes of one cluster, from 0 to 10,
// and for what. A part that did not count is nil.
type Mark struct {
	Cluster  string    `json:"cluster"`
	Score    int       `json:"score"`
	Data     *Data     `json:"data"`
	Siblings *Siblings `json:"siblings"`
	Room     *Room     `json:"room"`
}

// Data is how many bytes of the pod's data are there, of how many in all.
type Data struct {
	Bytes float64 `json:"bytes"`
	Of    float64 `json:"of"`
}

// Siblings are counted by the rule of the class of the pod's new claims.
type Siblings struct {
	Pack   *Count `json:"pack"`
	Spread *Count `json:"spread"`
}

// Count is how many volumes of the other pods of a StatefulSet are there, of how
// many in all.
type Count struct {
	Here int `json:"here"`
	Of   int `json:"of"`
}

// Room is how many bytes are free there for new volumes of a real class, of which
// the pod's claims ask for some. Without a class nothing is known of it.
type Room struct {
	Class string  `json:"class"`
	Free  float64 `json:"free"`
	Asked float64 `json:"asked"`
}

func (m Mark) line() string {
	var parts []string
	if m.Data != nil {
		parts = append(parts, fmt.Sprintf("%s of the pod's %s of data", size(m.Data.Bytes), size(m.Data.Of)))
	}
	if m.Siblings != nil {
		parts = append(parts, m.Siblings.Pack.phrases("to be together")...)
		parts = append(parts, m.Siblings.Spread.phrases("to be spread")...)
	}
	switch room := m.Room; {
	case room == nil:
	case room.Class == "":
		parts = append(parts, "nobody knows how much room")
	default:
		parts = append(parts, fmt.Sprintf("%s free in class %s, %s asked for", size(room.Free), room.Class, size(room.Asked)))
	}
	return fmt.Sprintf("extender: %d of 10 for nodes of %s: %s", m.Score, place(m.Cluster), strings.Join(parts, "; "))
}

func (c *Count) phrases(rule string) []string {
	if c == nil {
		return nil
	}
	return []string{fmt.Sprintf("%d of %d volumes of its StatefulSet, which are %s", c.Here, c.Of, rule)}
}

// size writes a number of bytes as Kubernetes does, with at most one decimal.
func size(bytes float64) string {
	unit := 0
	units := []string{"", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"}
	for bytes >= 1024 && unit < len(units)-1 {
		bytes /= 1024
		unit++
	}
	return strings.TrimSuffix(strconv.FormatFloat(bytes, 'f', 1, 64), ".0") + units[unit]
}
