package transport

// lanes says that processes of this machine can meet on a local socket that has a name but no file.
const lanes = true
