package cli

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// Kind is a kind of object that arguments name, as messages and kubectl call it.
type Kind string

// The kinds that commands take.
const (
	Claim         Kind = "pvc"
	Volume        Kind = "pv"
	Pod           Kind = "pod"
	Deployment    Kind = "deployment"
	StatefulSet   Kind = "statefulset"
	ReplicaSet    Kind = "replicaset"
	DaemonSet     Kind = "daemonset"
	Job           Kind = "job"
	Namespace     Kind = "namespace"
	Node          Kind = "node"
	Move          Kind = "volumemove"
	RemoteCluster Kind = "remotecluster"
)

// kindNames are the names that kubectl has for each kind.
var kindNames = map[Kind][]string{
	Claim:         {"pvc", "pvcs", "persistentvolumeclaim", "persistentvolumeclaims"},
	Volume:        {"pv", "pvs", "persistentvolume", "persistentvolumes"},
	Pod:           {"pod", "pods", "po"},
	Deployment:    {"deployment", "deployments", "deploy", "deployment.apps", "deployments.apps"},
	StatefulSet:   {"statefulset", "statefulsets", "sts", "statefulset.apps", "statefulsets.apps"},
	ReplicaSet:    {"replicaset", "replicasets", "rs", "replicaset.apps", "replicasets.apps"},
	DaemonSet:     {"daemonset", "daemonsets", "ds", "daemonset.apps", "daemonsets.apps"},
	Job:           {"job", "jobs", "job.batch", "jobs.batch"},
	Namespace:     {"namespace", "namespaces", "ns"},
	Node:          {"node", "nodes", "no"},
	Move:          {"volumemove", "volumemoves", "volumemove.lodestone.dev", "volumemoves.lodestone.dev"},
	RemoteCluster: {"remotecluster", "remoteclusters", "remotecluster.lodestone.dev", "remoteclusters.lodestone.dev"},
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
	if kind := KindOf(args[:min(1, len(args))]...); kind != "" && len(args) > 1 && !strings.Contains(args[1], "/") {
		before, args = kind, args[1:]
	}
	var all []Reference
	for _, arg := range args {
		reference := Reference{Kind: before, Name: arg}
		if kind, name, ok := strings.Cut(arg, "/"); ok {
			reference = Reference{Kind: KindOf(kind), Name: name}
			if before != "" || reference.Kind == "" {
				return nil, Misuse("%q is not understood: write %s", arg, forms(takes))
			}
		}
		if reference.Name == "" {
			return nil, Misuse("%q has no name: write it as %s/NAME", arg, takes[0])
		}
		if reference.Kind != "" && !slices.Contains(takes, reference.Kind) {
			return nil, Misuse("a %s cannot be named here: write %s", reference.Kind, forms(takes))
		}
		all = append(all, reference)
	}
	return all, nil
}

// OneReference reads the arguments of a command that takes one object: NAME if there is but one kind
// of which it can be, KIND/NAME, or KIND NAME. It is pure but for the usage line of the command.
func OneReference(cmd *cobra.Command, args []string, takes ...Kind) (Reference, error) {
	if len(args) == 0 || len(args) == 1 && slices.Contains(takes, KindOf(args[0])) {
		return Reference{}, Misuse("say which %s: write %s; %s", inWords(takes), forms(takes), usage(cmd))
	}
	references, err := References(args, takes...)
	switch {
	case err != nil:
		return Reference{}, err
	case len(references) > 1:
		return Reference{}, Misuse("%q is one argument too many: the command takes one %s at a time; %s", args[len(args)-1], inWords(takes),
			usage(cmd))
	case references[0].Kind != "":
		return references[0], nil
	case len(takes) > 1:
		return Reference{}, Misuse("%q may be a %s: write %s", args[0], inWords(takes), formsOf(takes, args[0]))
	}
	return Reference{Kind: takes[0], Name: references[0].Name}, nil
}

// TakesOne checks the arguments of a command that takes one object of one of these kinds.
func TakesOne(takes ...Kind) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		_, err := OneReference(cmd, args, takes...)
		return err
	}
}

// NoArguments checks that there are none, and says what is one too many.
func NoArguments(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return Misuse("%q is one argument too many: %s takes none; %s", args[0], cmd.CommandPath(), usage(cmd))
}

func usage(cmd *cobra.Command) string { return "usage: " + cmd.UseLine() }

// KindOf returns the kind of which the only word is a name; empty for other words.
func KindOf(words ...string) Kind {
	for kind, names := range kindNames {
		if len(words) == 1 && slices.Contains(names, strings.ToLower(words[0])) {
			return kind
		}
	}
	return ""
}

// forms lists how objects of kinds are written: pod/NAME, pvc/NAME or pv/NAME.
func forms(kinds []Kind) string { return formsOf(kinds, "NAME") }

func formsOf(kinds []Kind, name string) string {
	var all []string
	for _, kind := range kinds {
		all = append(all, string(kind)+"/"+name)
	}
	return Or(all)
}

func inWords(kinds []Kind) string {
	var all []string
	for _, kind := range kinds {
		all = append(all, string(kind))
	}
	return Or(all)
}

// Or joins words to a list in which the last two are joined by or.
func Or(words []string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:len(words)-1], ", ") + " or " + words[len(words)-1]
}
