package cli

import (
	"slices"
	"strings"
)

// Kind is a kind of object that arguments name, as messages and kubectl call it.
type Kind string

// The kinds that commands take.
const (
	Claim       Kind = "pvc"
	Pod         Kind = "pod"
	Deployment  Kind = "deployment"
	StatefulSet Kind = "statefulset"
	Move        Kind = "volumemove"
)

// kindNames are the names that kubectl has for each kind.
var kindNames = map[Kind][]string{
	Claim:       {"pvc", "pvcs", "persistentvolumeclaim", "persistentvolumeclaims"},
	Pod:         {"pod", "pods", "po"},
	Deployment:  {"deployment", "deployments", "deploy", "deployment.apps", "deployments.apps"},
	StatefulSet: {"statefulset", "statefulsets", "sts", "statefulset.apps", "statefulsets.apps"},
	Move:        {"volumemove", "volumemoves", "volumemove.lodestone.dev", "volumemoves.lodestone.dev"},
}

// Reference is an object that an argument names. Kind is empty if the argument says none.
type Reference struct {
	Kind Kind
	Name string
}

// References reads arguments as kubectl does: NAME, KIND/NAME, or a KIND before all NAMEs. It is a
// mistake to name a kind that is not among those that the command takes. It is pure.
func References(args []string, takes ...Kind) ([]Reference, error) {
	var before Kind
	if kind := kindOf(args[:min(1, len(args))]); kind != "" && len(args) > 1 && !strings.Contains(args[1], "/") {
		before, args = kind, args[1:]
	}
	var all []Reference
	for _, arg := range args {
		reference := Reference{Kind: before, Name: arg}
		if kind, name, ok := strings.Cut(arg, "/"); ok {
			reference = Reference{Kind: kindOf([]string{kind}), Name: name}
			if before != "" || reference.Kind == "" {
				return nil, Misuse("%q is not understood: name one of the kind %s", arg, listKinds(takes))
			}
		}
		if reference.Name == "" {
			return nil, Misuse("%q has no name: write it as %s/NAME", arg, takes[0])
		}
		if reference.Kind != "" && !slices.Contains(takes, reference.Kind) {
			return nil, Misuse("a %s cannot be named here: name one of the kind %s", reference.Kind, listKinds(takes))
		}
		all = append(all, reference)
	}
	return all, nil
}

// kindOf returns the kind of which the only word is a name; empty for other words.
func kindOf(words []string) Kind {
	for kind, names := range kindNames {
		if len(words) == 1 && slices.Contains(names, strings.ToLower(words[0])) {
			return kind
		}
	}
	return ""
}

func listKinds(kinds []Kind) string {
	var names []string
	for _, kind := range kinds {
		names = append(names, string(kind))
	}
	return strings.Join(names, ", ")
}
