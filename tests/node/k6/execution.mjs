// What a script may ask about where it is; the runner sets it.

export const scenario = { startTime: Date.now(), iterationInTest: 0 };

export default { scenario };
