package cases

import "errors"

// errNoStream says that an engine has no stream that could be spoilt.
var errNoStream = errors.New("it copies within one machine, through no connection")

// spoilStream has a bit turn on the way, if the case asks for that.
func (r *run) spoilStream(move Move) error {
	if r.c.SpoilStream == 0 {
		return nil
	}
	streamed, ok := move.(Streamed)
	if !ok {
		return errNoStream
	}
	streamed.SpoilStream(r.c.SpoilStream)
	return nil
}

// streamSpoilt fails the case unless the bit has turned.
func (r *run) streamSpoilt(move Move) {
	if streamed, ok := move.(Streamed); ok && r.c.SpoilStream > 0 && !streamed.StreamSpoilt() {
		r.source.do("turn a bit of the stream", func() error { return errors.New("so much was never sent") })
	}
}

// spoilTarget damages the target.
func (r *run) spoilTarget() {
	if r.c.Spoil != nil {
		r.c.Spoil(r.target)
	}
	if r.c.SpoilDisk != nil {
		r.target.do("turn a bit of the disk", func() error { return r.c.SpoilDisk(r.disk) })
	}
}
