package imports

// text is the help of one command.
type text struct{ short, long, example string }

const common = `
Nothing is copied. It is refused (exit code 3) while a pod uses the data, and for
what does not fit; nothing is changed then. It may be stopped and run again at any
time, and goes on where it stopped: all that it needs is recorded on the volume and
the new claim. It needs your own rights to change volumes, so that no user can import
what is not theirs.`

var texts = map[string]text{
	"pvc": {
		short: "Make the volume of a real claim that of a virtual claim, without copying",
		long: `Import makes the volume of a real claim the volume of a new virtual claim.

At home the real claim goes, and a virtual claim of the same name, or of that given
with --as, takes its place: with the same size, modes, labels and annotations. The
real volume is bound to a twin in lodestone-storage; its reclaim policy stays as it
is. Until the real claim, or the virtual volume of before, is deleted, --undo takes
all back.

With --cluster, a real claim of a remote cluster, in the namespace there that belongs
to the namespace at home, stays under its name and becomes the shadow of a virtual
claim of that name. Until there is a virtual volume, --undo takes all back. A claim
that home kept there before can be imported again, which cannot be undone.
` + common,
		example: `  # The data of claim data, in namespace shop, goes on as a virtual claim of that name
  kubectl lodestone import pvc data -n shop --class lodestone

  # A claim in cluster west
  kubectl lodestone import pvc data -n shop --class lodestone --cluster west --remote-context west`,
	},
	"pv": {
		short: "Make a volume that was kept, or a real one, that of a virtual claim",
		long: `Import makes a volume of home the volume of a new virtual claim: a virtual volume that
policy Retain kept after its claim was deleted, wherever its data is, or a real volume
of home, bound, released or never used.

A virtual volume that is Released goes, and the new claim has one of its own. Its
claim has the name of the one before, unless --as gives another. Data of another
namespace than the current one is imported only if -n names one.
` + common,
		example: `  # What policy Retain kept of a claim gets a claim again, in its namespace
  kubectl lodestone import pv pvc-4445da0c-5130-49fc-9193-1d95fcb875c1 -n shop --class lodestone

  # The data is in cluster west
  kubectl lodestone import pv pvc-4445da0c-5130-49fc-9193-1d95fcb875c1 -n shop --class lodestone --remote-context west`,
	},
}
